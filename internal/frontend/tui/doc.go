// Package tui is the terminal UI: a conversation with the main agent of a session, its
// questions, and its tasks.
//
// It is a frontend like the others and knows the session by its API alone, so that the
// same screens work on a session of any process, in any number of terminals. [Model] is
// one state that [Model.Update] changes and [Model.View] draws; both do no I/O. Requests to
// the session are commands, and its news come as messages of a [listener]. Text of unknown
// origin enters through package printable only.
//
// The parts: transcript folds and draws a conversation, panel the tasks, input is the
// editor of prompts, markdown draws the texts of agents.
package tui
