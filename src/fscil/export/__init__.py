"""Models for programs without torch: ONNX files that take photos as they were decoded, and classes from outside."""

from fscil.export.onnx import Exported, export_onnx

__all__ = ["Exported", "export_onnx"]
