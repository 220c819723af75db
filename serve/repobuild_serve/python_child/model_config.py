"""``triton_python_backend_utils.ModelConfig``: a config that ``auto_complete_config`` fills in."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Sequence

_INPUT = ("name", "data_type", "dims", "optional")
_OUTPUT = ("name", "data_type", "dims")
_REQUIRED = ("name", "data_type", "dims")


class ModelConfig:
    """The config of a model, which may be completed and not contradicted.

    Args:
        model_config: The config as JSON.
    """

    def __init__(self, model_config: str) -> None:
        self._model_config: Dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> Dict[str, Any]:
        """The config, as its JSON has it."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch.

        Raises:
            ValueError: The config already allows larger ones.
        """
        has = self._model_config["max_batch_size"]
        if has > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {has}, but in auto-complete-config "
                "function for model "
                f"'{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Let the model's requests be batched.

        Raises:
            ValueError: The config has another scheduler.
        """
        for found in ("sequence_batching", "ensemble_scheduling"):
            if found in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{found}', but "
                    "auto-complete-config function "
                    f"for model '{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: Dict[str, Any]) -> None:  # noqa: A002 - models may name it
        """Add an input, or complete one.

        Args:
            input: ``name``, ``data_type`` and ``dims``; may have ``optional``.

        Raises:
            ValueError: A property is missing, unknown, or contradicts the config.
        """
        self._add("input", input, _INPUT)

    def add_output(self, output: Dict[str, Any]) -> None:
        """Add an output, or complete one.

        Args:
            output: ``name``, ``data_type`` and ``dims``.

        Raises:
            ValueError: A property is missing, unknown, or contradicts the config.
        """
        self._add("output", output, _OUTPUT)

    def set_model_transaction_policy(self, transaction_policy_dict: Dict[str, Any]) -> None:
        """Say whether the model is decoupled.

        Args:
            transaction_policy_dict: ``decoupled``.

        Raises:
            ValueError: There is another key, or it contradicts the config.
        """
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                "model transaction property in auto-complete-config function for model "
                f"'{self._name}' contains property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if policy.get("decoupled", wanted) != wanted:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model "
                f"'{self._name}', which "
                f"is already set to '{policy['decoupled']}'."
            )
        policy["decoupled"] = wanted

    @property
    def _name(self) -> str:
        return str(self._model_config["name"])

    def _add(self, role: str, given: Dict[str, Any], allowed: Sequence[str]) -> None:
        where = f"in auto-complete-config function for model '{self._name}'"
        if any(key not in allowed for key in given):
            listed = ", ".join(f"'{key}'" for key in allowed[:-1]) + f" and '{allowed[-1]}'"
            raise ValueError(
                f"{role} '{given.get('name', '')}' {where} contains property other than {listed}."
            )
        for key in _REQUIRED:
            if key not in given:
                which = f"{role} '{given['name']}'" if "name" in given else role
                raise ValueError(f"{which} {where} is missing '{key}' property.")
        tensors: List[Dict[str, Any]] = self._model_config[role]
        for tensor in tensors:
            if tensor["name"] == given["name"]:
                self._check(role, tensor, given)
                tensor.update(given)
                return
        tensors.append(given)

    def _check(self, role: str, has: Dict[str, Any], given: Dict[str, Any]) -> None:
        name = given["name"]
        if has["data_type"] not in ("TYPE_INVALID", given["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {has['data_type']} for "
                f"{role} '{name}', model provides {given['data_type']}"
            )
        if has["dims"] and has["dims"] != given["dims"]:
            raise ValueError(
                f"model '{self._name}', tensor '{name}': the model expects dims {given['dims']} but "
                "the model "
                f"configuration specifies dims {has['dims']}"
            )
        if has.get("optional", False) != given.get("optional", has.get("optional", False)):
            raise ValueError(
                f"model '{self._name}', tensor '{name}': the model expects optional "
                f"{given['optional']} but the "
                f"model configuration specifies optional {has['optional']}"
            )
