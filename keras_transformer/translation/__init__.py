"""From strings to strings: translators of models and of exports, lexicons and scores."""
