"""Adaptation: continue an encoder's pretraining objective on the task's unlabelled training texts."""
