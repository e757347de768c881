"""Pictures, audio and other files that a memory tells of; and pictures as activation memory of models that see."""
