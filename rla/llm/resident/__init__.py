"""One engine process for all stages of a run: weights are swapped in place where stages ask for other ones.

An engine that every stage starts anew costs seconds (transformers) to minutes (vLLM), several times an
iteration. With `RLA_ENGINE=<socket>` in the environment a stage's generator is a connection to the server; where
none answers, the stage starts an engine of its own. What is sampled is the same.

`protocol` says what goes over the socket, `client` is the stage's Generator, `seats` keeps the engines, `server`
answers, `control` starts and stops.
"""
