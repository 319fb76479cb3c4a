"""What a step of an optimizer costs on this machine: on built-in cases, or on a model of your own."""
