// Package hook runs commands of the user when something happens to an agent, and
// hears what they say to it.
//
// It owns both forms of hook files, which hook an event is for, what a hook is
// told and what its answer means. It promises that a hook of a source that is not
// trusted never runs; that a hook which may deny never lets something pass because
// it hung, crashed or could not be started; that no hook can lift a denial;
// that of a hook nothing is left running; and that what it prints is bounded, in
// memory and in the files of [Base.Spill]. Hooks of one event run side by side, and
// their answers are taken in the order in which they were written.
//
// It does not find files, does not know who is trusted, and decides no permission:
// it asks [Rules]. The form of events and answers is that of Claude Code and of
// GitHub Copilot, by the file that a hook comes from; docs/hooks.md says where
// Drover differs.
package hook
