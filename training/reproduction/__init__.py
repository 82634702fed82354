"""ECHO's experiment in small: a world of four files and a model made on the spot.

`files` is the world and its commands, `rollouts` its rows, `experiment` the training, run as a
process by `python -m training.reproduction.experiment`. What its figures must show is asserted by
`claims`. After the CPU example of OpenEnv (`echo_world_modelling`): there the rollouts are scripted
and only the environment term is trained; here a policy acts, so that GRPO and ECHO can be compared.
"""
