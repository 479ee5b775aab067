package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/drover-dev/drover/internal/api/attention"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	failure   = attention.Failure
	maxLines  = 5   // items that the text names
	lineBytes = 200 // of one
)

// message is one announcement in the forms of all channels.
type message struct {
	title, text string // the text has a line for each item
	blocking    bool   // something waits for the user
	json        []byte // for webhooks and commands
}

// Announcement is the JSON of a message: what a webhook is sent, and what a command reads. Calls of tools are
// not in it.
type Announcement struct {
	Title string `json:"title"`
	Text  string `json:"text"` // the title and a line for each item, as chat services show it
	Items []Item `json:"items"`
}

// Item is an item of the attention list, without the call that it asks about.
type Item struct {
	ID      string         `json:"id"`
	Kind    attention.Kind `json:"kind"`
	Session task.ID        `json:"session_id"`
	Task    task.ID        `json:"task_id,omitempty"`
	Name    string         `json:"name,omitempty"`
	Why     string         `json:"why"`
	Since   time.Time      `json:"since,omitzero"`
	Until   time.Time      `json:"until,omitzero"`
	Blocks  int            `json:"blocks"`
	Answer  []string       `json:"answer"`
}

// compose makes one message of a batch.
func compose(batch []control.AttentionItem) (message, error) {
	m := message{title: "Drover needs you"}
	if len(batch) > 1 {
		m.title = fmt.Sprintf("Drover: %d items need you", len(batch))
	}
	var lines []string
	a := Announcement{Title: m.title, Items: []Item{}}
	for _, i := range batch {
		m.blocking = m.blocking || i.Kind != failure
		if len(lines) < maxLines {
			lines = append(lines, line(i))
		}
		a.Items = append(a.Items, Item{i.ID, i.Kind, i.Session, i.Task, i.Name, why(i), i.Since, i.Until, i.Blocks, i.Answer})
	}
	if more := len(batch) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: drover attention", more))
	}
	m.text = strings.Join(lines, "\n")
	a.Text = m.title + "\n" + m.text
	data, err := json.Marshal(a)
	m.json = data
	return m, err
}

// line is an item in a line, in which every character is seen.
func line(i control.AttentionItem) string {
	text := string(i.Kind)
	if i.Name != "" {
		text += ", " + i.Name
	}
	return excerpt.Line(excerpt.Exact(text+": "+why(i)), lineBytes)
}

// why is what an item needs. The reason of a question for permission may repeat the call, which stays on this
// machine.
func why(i control.AttentionItem) string {
	if q := i.Request; q != nil && q.Kind != task.Choice && q.Kind != task.Form {
		return "permission for " + q.Tool
	}
	return i.Why
}
