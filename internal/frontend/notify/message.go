package notify

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

const (
	maxLines  = 5   // items in the text
	lineBytes = 200 // of one item
)

// message is one announcement in the forms of all channels.
type message struct {
	title, text string // the text has a line for each item
	blocking    bool   // an item waits for the user
	json        []byte // for webhooks and commands
}

// Announcement is a message for a webhook or a command, as JSON. Its items have no calls of tools.
type Announcement struct {
	Title string                  `json:"title"`
	Text  string                  `json:"text"` // the title and a line for each item, as chat services show it
	Items []control.AttentionItem `json:"items"`
}

// compose makes one message of a batch.
func compose(batch []control.AttentionItem) (message, error) {
	m := message{title: "Drover needs you"}
	if len(batch) > 1 {
		m.title = fmt.Sprintf("Drover: %d items need you", len(batch))
	}
	var lines []string
	a := Announcement{Title: m.title, Items: []control.AttentionItem{}}
	for _, i := range batch {
		m.blocking = m.blocking || !i.Past()
		if len(lines) < maxLines {
			lines = append(lines, line(i))
		}
		i.Why, i.What, i.Request = why(i), "", nil
		a.Items = append(a.Items, i)
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

// line is an item in a line with every character visible.
func line(i control.AttentionItem) string {
	text := string(i.Kind)
	if i.Name != "" {
		text += ", " + i.Name
	}
	return excerpt.Line(excerpt.Exact(text+": "+why(i)), lineBytes)
}

// why is the reason of an item. The reason of a permission question may repeat the call, which must stay on this
// machine.
func why(i control.AttentionItem) string {
	if q := i.Request; q != nil && q.Kind != task.Choice && q.Kind != task.Form {
		return "permission for " + q.Tool
	}
	return i.Why
}
