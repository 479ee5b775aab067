// Package conformance runs the conformance suite of the Model Context Protocol against a
// fixture server on the parts of Drover's server.
package conformance
