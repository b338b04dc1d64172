"""Chakra execution traces: .et (protobuf) and JSON, read and written."""
