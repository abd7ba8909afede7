"""Real trainings under the meter, held against their plans."""
