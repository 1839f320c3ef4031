# Each target is `python3 start.py <target>`; start.py has the options (make setup FLAGS=--cpu).
PYTHON ?= python3
FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup lessons test test-all lab notebooks model

help:
	@$(PYTHON) start.py --help

setup lessons test test-all lab notebooks model:
	@$(PYTHON) start.py $@ $(FLAGS)
