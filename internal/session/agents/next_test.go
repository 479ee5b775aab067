package agents

import (
	"testing"

	"github.com/drover-dev/drover/task"
)

// What an agent has started decides with who waits for it, and what its definition says, what it
// does after an answer.
func TestNext(t *testing.T) {
	for _, tt := range []struct {
		name string
		is   answered
		want next
	}{
		{"alone", answered{}, ends},
		{"called, alone", answered{called: true, movable: true}, passesOn}, // a task may be moved to the background now
		{"works", answered{works: true, movable: true}, waitsForTasks},
		{"works in its own checkout", answered{works: true}, waitsForTasks},
		{"called", answered{works: true, called: true, movable: true}, passesOn},
		{"called, in its own checkout", answered{works: true, called: true}, ends},
		{"an unread end", answered{unread: true}, waitsForTasks},
		{"stops, an unread end", answered{unread: true, onEnd: task.Stops}, reads},
		{"called, an unread end", answered{unread: true, called: true, movable: true}, reads},
		{"stops", answered{works: true, movable: true, onEnd: task.Stops}, ends},
		{"called, stops", answered{works: true, called: true, movable: true, onEnd: task.Stops}, ends},
		{"passes on", answered{works: true, movable: true, onEnd: task.Reparents}, passesOn},
		{"stays", answered{works: true, stays: true, unread: true}, waitsForMail},
		{"was asked to finish", answered{works: true, stays: true, unread: true, leaves: true}, ends},
	} {
		if got := tt.is.next(); got != tt.want {
			t.Errorf("%s: %v, not %v", tt.name, got, tt.want)
		}
	}
}
