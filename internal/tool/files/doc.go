// Package files has the tools Read, Write and Edit.
//
// A set of tools belongs to one agent and remembers which version of each file that
// agent has read. A file is changed only if the agent has read its current version.
// Nothing is written outside the given folders, whatever links say, and a file is
// replaced completely or not at all. A gate checks permissions.
package files
