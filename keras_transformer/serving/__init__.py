"""A server with the REST and gRPC interface of TensorFlow Serving."""

import logging

LOG = logging.getLogger(__name__)
"""What the server reports: versions as they come and go, and what fails."""
