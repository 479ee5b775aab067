package task

import "fmt"

// Verb names a change of a run. Verbs that end a run are bare; the statuses
// they lead to are participles.
type Verb string

// The verbs.
const (
	Create      Verb = "create" // a task is recorded for the first time
	Begin       Verb = "begin"
	Report      Verb = "report" // progress
	Save        Verb = "save"   // a checkpoint
	Rest        Verb = "rest"   // a multi-turn agent waits for mail
	Wake        Verb = "wake"
	Ask         Verb = "ask"
	Answer      Verb = "answer"
	Pause       Verb = "pause"
	Thaw        Verb = "thaw"
	Park        Verb = "park" // a usage limit of a provider holds it
	Unpark      Verb = "unpark"
	Retry       Verb = "retry" // its command has failed, and is to be started again
	Background  Verb = "background"
	RequestStop Verb = "request_stop"
	Complete    Verb = "complete"
	Fail        Verb = "fail"
	Stop        Verb = "stop"
	Resume      Verb = "resume"    // an ended task gets a new run
	Reparent    Verb = "reparent"  // its parent has ended, and left it to another
	MarkSeen    Verb = "mark_seen" // the user knows how an ended run ended
)

// Verbs returns all verbs but [Create], in the order of a life.
func Verbs() []Verb {
	return []Verb{
		Begin,
		Report,
		Save,
		Rest,
		Wake,
		Ask,
		Answer,
		Pause,
		Thaw,
		Park,
		Unpark,
		Retry,
		Background,
		Reparent,
		RequestStop,
		Complete,
		Fail,
		Stop,
		Resume,
		MarkSeen,
	}
}

// MoveError is a change that the state table does not allow.
type MoveError struct {
	ID   ID
	From Status
	Verb Verb
}

func (e *MoveError) Error() string {
	return fmt.Sprintf("task %s: cannot %s while %s", e.ID, e.Verb, e.From)
}

// The words of OnEnd: the children of a task go to its own parent when it ends by itself, or are
// stopped then.
const (
	Reparents = "reparent"
	Stops     = "stop"
)
