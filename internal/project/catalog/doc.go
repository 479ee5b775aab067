// Package catalog finds the definitions of agents: files of the project, of the
// user and of plugins, those given as JSON, and those of a server.
//
// It promises that a file is read through the folder it lies in and no link
// leads out of it, that no file is dropped without a [Problem] that names it,
// that a file which was broken keeps the definition it had, and that what a
// project's files would execute is left out until the project is trusted. What
// has not changed is not read again. It runs nothing, and it decides neither
// models nor permissions: what a definition asks for is weighed where the agent
// is started.
//
// The forms are those of Claude Code and of GitHub Copilot, late 2026.
package catalog
