"""Importing this makes the pauses of OpenAI's client between tries short: it waits by the wall clock."""

import openai._base_client as client

client.INITIAL_RETRY_DELAY = 0.002
client.MAX_RETRY_DELAY = 0.02
