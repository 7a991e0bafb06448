"""LangChain's standard tests of a chat model, over its client for OpenAI's API."""

import os

import pytest
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestChat(ChatModelIntegrationTests):
    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {
            "model": "demo",
            "base_url": f"{os.environ['KILN_URL']}/v1",
            "api_key": "none",
            "temperature": 0,
            "max_tokens": 64,
            "max_retries": 0,
        }
