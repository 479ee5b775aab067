// Package tui is the terminal UI: a conversation with the main agent of a session, its
// questions, and its tasks.
//
// It is a frontend like the others and knows the session by its API alone, so that the
// same screens work on a session of any process, in any number of terminals. [Model] is
// one state that [Model.Update] changes and [Model.View] draws; both do no I/O. What is
// to be done to the session are commands, and what the session tells comes as messages
// of a [listener]. Text that others have written enters through package printable only.
//
// The parts: transcript folds and draws a conversation, panel the tasks, input is the
// editor of prompts, markdown draws what agents write.
package tui
