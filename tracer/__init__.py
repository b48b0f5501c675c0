"""stepscope's recorder. Importing it loads no torch."""
