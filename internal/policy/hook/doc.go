// Package hook runs the user's commands on events of an agent, and applies their
// answers.
//
// It owns both formats of hook files, which hooks match an event, the input of a hook
// and the meaning of its answer. A hook of an untrusted source never runs. A hook that
// may deny never allows a call by hanging, crashing or failing to start. No hook
// overrides a denial. All processes of a hook are ended, and its output is bounded in
// memory and in the files of [Base.Spill]. Hooks of one event run in parallel, and
// their answers are applied in the order of the file.
//
// The caller finds the files and decides which are trusted; [Rules] decides
// permissions. Events and answers have the format of Claude Code or of GitHub
// Copilot, depending on the file; docs/hooks.md lists the differences.
package hook
