package control

import (
	"time"

	"github.com/drover-dev/drover/task"
)

// MaxSchedules limits the schedules of a project.
const MaxSchedules = 100

// Schedule starts a task at certain times.
type Schedule struct {
	ID      string        `json:"schedule_id"`
	Name    string        `json:"name,omitempty"`
	Cron    string        `json:"cron"`              // such as 0 6 * * *
	Zone    string        `json:"zone,omitempty"`    // such as Europe/Berlin; empty: the zone of the host
	Late    time.Duration `json:"late_ns,omitempty"` // by which a run may be late; 0: an hour
	Cwd     string        `json:"cwd"`               // absolute
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	Shell   *ShellRequest `json:"shell,omitempty"`
	Agent   *AgentRequest `json:"agent,omitempty"`
	Paused  bool          `json:"paused,omitempty"` // it starts nothing at its times

	Created  time.Time  `json:"create_time"`
	Next     time.Time  `json:"next_time"`
	LastTime *time.Time `json:"last_time,omitempty"` // of the last start
	LastTask task.ID    `json:"last_task,omitempty"`
	Runs     int        `json:"runs"`
	Skipped  int        `json:"skipped"`
	LastSkip *Skip      `json:"last_skip,omitempty"`
}

// Skip says why a schedule did not start a task at its time.
type Skip struct {
	Time time.Time `json:"time"` // at which it was due
	Why  string    `json:"why"`
}

// ScheduleRequest changes the schedules of a project: one field is set.
type ScheduleRequest struct {
	Add    *Schedule `json:"add,omitempty"`    // without what the host sets
	Remove string    `json:"remove,omitempty"` // an ID or a name
	Pause  string    `json:"pause,omitempty"`
	Resume string    `json:"resume,omitempty"`
	Run    string    `json:"run,omitempty"` // start its task now
}

// Schedules are those of a project, in the order in which they were added. Changed is the one that
// a request was about, and Task what it has started.
type Schedules struct {
	Schedules []Schedule   `json:"schedules"`
	Changed   *Schedule    `json:"changed,omitempty"`
	Task      *task.Record `json:"task,omitempty"`
}
