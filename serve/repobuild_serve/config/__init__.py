"""From config.pbtxt to the settings of a model: parse, validate, complete, print."""
