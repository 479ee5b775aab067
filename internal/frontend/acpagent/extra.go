package acpagent

import (
	acp "github.com/coder/acp-go-sdk"
)

// What the types of the protocol library lack.

// newNotFound is the error for what does not exist.
func newNotFound(data any) *acp.RequestError {
	return &acp.RequestError{Code: -32002, Message: "Resource not found", Data: data}
}
