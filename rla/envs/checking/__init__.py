"""The parts of `rla.envs.checking.check`: one module for each part of the contract."""
