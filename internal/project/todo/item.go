package todo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a list and of one to-do.
const (
	MaxItems       = 20_000
	MaxEdges       = 1000     // to-dos that one waits for
	MaxLine        = 500      // bytes of a subject, an active form or an owner
	MaxDescription = 32 << 10 // bytes
	MaxMetadata    = 32 << 10 // bytes of its JSON
)

const (
	version = 1         // of the files
	maxFile = 1 << 20   // bytes of a file that is read at all
	maxID   = 1<<31 - 1 // far more than a list can hold
)

// ID numbers a to-do within its list, from 1 on. In JSON it is a string.
type ID int

// ParseID reads a number as people and models write it: 3 or #3.
func ParseID(text string) (ID, error) {
	digits := strings.TrimPrefix(text, "#")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > maxID || strconv.Itoa(n) != digits {
		return 0, fmt.Errorf("%.40q is not the number of a to-do", text)
	}
	return ID(n), nil
}

// String is the number as people see it, such as #3.
func (id ID) String() string { return "#" + strconv.Itoa(int(id)) }

// MarshalText is the number alone.
func (id ID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(id), 10), nil }

// UnmarshalText is [ParseID].
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// Status is the progress of a to-do. Every change between the three is allowed.
type Status string

// The statuses.
const (
	Pending    Status = "pending"
	InProgress Status = "in_progress"
	Completed  Status = "completed"
)

func (s Status) known() bool { return s == Pending || s == InProgress || s == Completed }

// Item is one to-do.
type Item struct {
	ID          ID                         `json:"id"`
	Subject     string                     `json:"subject"`     // a short imperative title
	Description string                     `json:"description"` // what must be done
	ActiveForm  string                     `json:"active_form"` // the -ing form, shown while it is in progress
	Status      Status                     `json:"status"`
	Owner       string                     `json:"owner"`      // the name of an agent, or empty
	BlockedBy   []ID                       `json:"blocked_by"` // the to-dos it waits for, in order; never nil
	Metadata    map[string]json.RawMessage `json:"metadata"`   // never nil
	Revision    int                        `json:"revision"`   // grows with each change
	CreateTime  time.Time                  `json:"create_time"`
	UpdateTime  time.Time                  `json:"update_time"`

	version int
	extra   map[string]json.RawMessage // of a newer version
}

// Title returns the text for a spinner: the active form, if any, while the to-do is in
// progress, else the subject.
func (it Item) Title() string {
	if it.Status == InProgress && it.ActiveForm != "" {
		return it.ActiveForm
	}
	return it.Subject
}

// clone shares nothing that can be changed with it.
func (it Item) clone() Item {
	it.BlockedBy, it.Metadata = slices.Clone(it.BlockedBy), maps.Clone(it.Metadata)
	return it
}

type field struct {
	name string
	at   any
}

// fields returns the fields of the file, in its order.
func (it *Item) fields() []field {
	return []field{
		{"v", &it.version},
		{"id", &it.ID},
		{"subject", &it.Subject},
		{"description", &it.Description},
		{"active_form", &it.ActiveForm},
		{"status", &it.Status},
		{"owner", &it.Owner},
		{"blocked_by", &it.BlockedBy},
		{"metadata", &it.Metadata},
		{"revision", &it.Revision},
		{"create_time", &it.CreateTime},
		{"update_time", &it.UpdateTime},
	}
}

// decode reads the file of the to-do with this ID. Names are compared exactly,
// so that foreign fields are recognised and kept.
func decode(id ID, data []byte) (Item, error) {
	var it Item
	var raw map[string]json.RawMessage
	var plain bytes.Buffer
	if err := json.Compact(&plain, data); err != nil {
		return it, errors.New("it is not JSON")
	}
	if err := json.Unmarshal(plain.Bytes(), &raw); err != nil || raw == nil {
		return it, errors.New("it is not a JSON object")
	}
	for _, f := range it.fields() {
		value, ok := raw[f.name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(value, f.at); err != nil {
			return it, fmt.Errorf("field %q has a wrong value", f.name)
		}
		delete(raw, f.name)
	}
	it.extra = raw
	if it.BlockedBy == nil {
		it.BlockedBy = []ID{}
	}
	if it.Metadata == nil {
		it.Metadata = map[string]json.RawMessage{}
	}
	if it.ID != id {
		return it, fmt.Errorf("it is the file of to-do %d, and says that it is %d", int(id), int(it.ID))
	}
	return it, it.check()
}

// encode is what decode reads.
func (it Item) encode() ([]byte, error) {
	all := it.fields()
	for _, name := range slices.Sorted(maps.Keys(it.extra)) {
		all = append(all, field{name, it.extra[name]})
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for i, f := range all {
		out.WriteByte("{,"[min(i, 1)])
		if err := enc.Encode(f.name); err != nil {
			return nil, err
		}
		out.Truncate(out.Len() - 1) // the line feed of Encode
		out.WriteByte(':')
		if err := enc.Encode(f.at); err != nil {
			return nil, err
		}
		out.Truncate(out.Len() - 1)
	}
	out.WriteString("}\n")
	if out.Len() > maxFile {
		return nil, fmt.Errorf("to-do %s would have %d bytes, more than the %d that are allowed", it.ID, out.Len(), maxFile)
	}
	return out.Bytes(), nil
}

// check refuses what may not be in a list.
func (it Item) check() error {
	if it.version < 1 {
		return errors.New("it has no version")
	}
	for _, f := range []struct{ name, text string }{{"subject", it.Subject}, {"active form", it.ActiveForm},
		{"owner", it.Owner}} {
		if err := checkLine(f.name, f.text); err != nil {
			return err
		}
	}
	switch {
	case strings.TrimSpace(it.Subject) == "":
		return errors.New("the subject is empty")
	case len(it.Description) > MaxDescription:
		return fmt.Errorf("the description has %d bytes, more than the %d that are allowed", len(it.Description),
			MaxDescription)
	case !utf8.ValidString(it.Description):
		return errors.New("the description is not valid UTF-8")
	case !it.Status.known():
		return fmt.Errorf("status %.40q is none of pending, in_progress, completed", it.Status)
	case len(it.BlockedBy) > MaxEdges:
		return fmt.Errorf("it would wait for %d others, more than the %d that are allowed", len(it.BlockedBy), MaxEdges)
	}
	size := 0
	for key, value := range it.Metadata {
		size += len(key) + len(value)
	}
	if size > MaxMetadata {
		return fmt.Errorf("the metadata has %d bytes, more than the %d that are allowed", size, MaxMetadata)
	}
	return nil
}

func checkLine(name, text string) error {
	switch {
	case len(text) > MaxLine:
		return fmt.Errorf("the %s has %d bytes, more than the %d that are allowed", name, len(text), MaxLine)
	case !utf8.ValidString(text):
		return fmt.Errorf("the %s is not valid UTF-8", name)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("the %s is not one line of text", name)
	}
	return nil
}
