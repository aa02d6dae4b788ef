# Five verbs; each runs in the environment that is active.
.PHONY: setup test check docs quickstart

setup: ## what you need to work on judgetrain, and the hooks that run before each commit
	pip install -c constraints.txt -e ".[test,docs]" pre-commit
	pre-commit install

test: ## the tests, on all cores
	python -m pytest -q

check: ## style and types
	ruff check .
	ruff format --check .
	mypy

docs: ## the pages, in site/
	mkdocs build --strict

quickstart: ## every stage on the generated world, with its table
	python -m judgetrain stage=evaluate
