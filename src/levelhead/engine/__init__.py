"""Execution of work: tasks, shards, the content-addressed store, executors and jobs, without torch.

A task is a call of a pure function; its key is the hash of everything that the result depends on.
An executor computes tasks, the store saves results, and a job connects them: a stored result is
never computed again.
"""
