"""An annotator without a model: labelling functions over text statistics."""
