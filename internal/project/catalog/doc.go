// Package catalog finds the definitions of agents: in files of the project, of the
// user and of plugins, in JSON that the caller gives, and on a server.
//
// It promises that a file is read through the folder it lies in and no link
// leads out of it, that no file is dropped without a [Problem] that names it,
// that a file which becomes invalid keeps its last valid definition, and that hooks
// and servers of a project's files are left out until the project is trusted. Files
// that have not changed are not read again. The package runs nothing and decides
// neither models nor permissions: the start of an agent weighs the requests of its
// definition.
//
// It reads the formats of Claude Code and of GitHub Copilot, late 2026.
package catalog
