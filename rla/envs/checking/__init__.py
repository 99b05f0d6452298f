"""The parts of `rla.envs.check`: one module for each part of the contract."""
