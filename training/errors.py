"""The exception tree of the trainer.

Each class also inherits the standard type it refines and takes one message, so that it survives
pickling. Expected outcomes (a skipped step, a row without reward) are values, not exceptions.
"""

from __future__ import annotations


class TrainingError(Exception):
    """Anything the trainer refuses or fails at."""


class ConfigurationError(TrainingError, ValueError):
    """A manifest or an objective is invalid; the message names the field and what is accepted."""


class RowError(TrainingError, ValueError):
    """A training row is malformed; the message names the row and the field."""


class CheckpointError(TrainingError, RuntimeError):
    """A checkpoint cannot be written, read, or belongs to another manifest."""


class NumericalError(TrainingError, RuntimeError):
    """Gradients were not finite too often in a row."""


class JobFolderBusy(TrainingError, RuntimeError):
    """Another runner holds this job folder."""


class DeadlineExceeded(TrainingError, TimeoutError):
    """Something the trainer waited for did not arrive in time; names what and how long."""


class SamplerError(TrainingError, ConnectionError):
    """A sampler on another server failed or does not serve the weights that were asked for."""


class MismatchError(TrainingError, ValueError):
    """Rows were sampled from other weights than those that are trained; says by how much."""


class RemoteError(TrainingError, ConnectionError):
    """A server that trains for us failed or refused; names the server, the call and its words."""
