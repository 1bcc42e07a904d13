"""A server with the REST and gRPC interface of TensorFlow Serving.

Everywhere in this subpackage, `settings` is the `ServingConfig`, `metrics` the `Metrics`,
`versions` the `Versions` and `batching` the `Batching` of the server, and `signature` the
`Signature` that a request calls. `deadline` is a time of the event loop.
"""

import logging

LOG = logging.getLogger(__name__)
"""What the server reports: versions as they come and go, and what fails."""
