package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const maxFileBytes = 16 << 20

// turn is one answer, as the file has it.
type turn struct {
	Text       string    `json:"text"`
	Thinking   string    `json:"thinking"`
	Tools      []toolUse `json:"tools"`
	StopReason string    `json:"stop_reason"`
	Usage      *usage    `json:"usage"`
	Delay      wait      `json:"delay"`
	Chunk      int       `json:"chunk"` // characters of a part; 0: all
	ChunkDelay wait      `json:"chunk_delay"`
	Cut        bool      `json:"cut"`
	Error      *failure  `json:"error"`
	When       *when     `json:"when"`
	Repeat     *int      `json:"repeat"` // nil: 1; -1: without end

	text, thinking *text
}

type toolUse struct {
	Name  string         `json:"name"`
	ID    string         `json:"id"`
	Input map[string]any `json:"input"`

	input value
}

type usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
}

type failure struct {
	Status     int    `json:"status"`
	Type       string `json:"type"`
	Message    string `json:"message"`
	RetryAfter wait   `json:"retry_after"`
}

// when is a condition, which holds if all of its parts do.
type when struct {
	LastContains   string `json:"last_contains"`
	PromptContains string `json:"prompt_contains"`
}

// wait is a length of time, written like "1.5s".
type wait time.Duration

func (w *wait) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) != nil {
		return fmt.Errorf("write a time as text with a unit, such as \"50ms\", not %s", data)
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("write a time like \"50ms\" or \"2s\", not %q", s)
	}
	*w = wait(d)
	return nil
}

// Load reads a script: YAML where the name ends in .yaml or .yml, else JSON.
// The error names every fault of the file, one a line.
func Load(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", path, err)
	}
	return Parse(path, data)
}

// Parse is [Load] for a file that was read already.
func Parse(path string, data []byte) (*Model, error) {
	agents, err := parse(path, data)
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", path, err)
	}
	m := &Model{path: path, agents: map[string][]turn{}, places: map[place]*state{}}
	var faults []error
	names := make([]string, 0, len(agents))
	for name := range agents {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		turns := make([]turn, len(agents[name]))
		for i, raw := range agents[name] {
			if err := turns[i].load(raw); err != nil {
				faults = append(faults, fmt.Errorf("script %s: agent %q: turn %d: %w", path, name, i, err))
			}
		}
		m.agents[name] = turns
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return m, nil
}

func parse(path string, data []byte) (map[string][]json.RawMessage, error) {
	if len(data) > maxFileBytes {
		return nil, errors.New("it is larger than 16 MiB; split it")
	}
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8 text; save it as UTF-8")
	}
	if ext := strings.ToLower(filepath.Ext(path)); ext == ".yaml" || ext == ".yml" {
		var v any
		if err := yaml.Unmarshal(data, &v); err != nil {
			return nil, err
		}
		var err error
		if data, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("keys must be texts, and numbers finite: %w", err)
		}
	}
	var file struct {
		Schema  string                       `json:"$schema"`
		Version int                          `json:"version"`
		Agents  map[string][]json.RawMessage `json:"agents"`
	}
	if err := strict(data, &file); err != nil {
		return nil, err
	}
	if file.Version != 1 {
		return nil, fmt.Errorf("version is %d; write version: 1", file.Version)
	}
	if len(file.Agents) == 0 {
		return nil, errors.New(`it has no agents; give turns for "main", or for "*"`)
	}
	return file.Agents, nil
}

// strict decodes one value and refuses unknown keys.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the end of the JSON; one file is one object")
	}
	return nil
}

func (t *turn) load(raw json.RawMessage) error {
	if err := strict(raw, t); err != nil {
		return err
	}
	says := strings.TrimSpace(t.Text) != ""
	switch {
	case t.Error != nil && (says || t.Thinking != "" || len(t.Tools) > 0 || t.Cut):
		return errors.New("a turn with error says nothing else; move the rest into a turn of its own")
	case t.Cut && !says:
		return errors.New("cut needs a text to cut; give one")
	case t.Cut && t.StopReason != "":
		return errors.New("a cut answer has no stop_reason; leave one of them out")
	case t.Chunk < 0:
		return errors.New("chunk is a number of characters, from 1")
	case t.Repeat != nil && *t.Repeat < 1 && *t.Repeat != -1:
		return errors.New("repeat is from 1, or -1 for without end")
	case t.When != nil && t.When.LastContains == "" && t.When.PromptContains == "":
		return errors.New("when needs last_contains or prompt_contains with a text")
	case t.Error != nil && t.Error.Message == "":
		return errors.New("error needs a message")
	case t.Error != nil && t.Error.RetryAfter > 0 && t.uses() < 0:
		return errors.New("an error that is retried cannot repeat without end")
	}
	var err error
	if t.text, err = newText(t.Text); err != nil {
		return fmt.Errorf("text: %w", err)
	}
	if t.thinking, err = newText(t.Thinking); err != nil {
		return fmt.Errorf("thinking: %w", err)
	}
	for i := range t.Tools {
		u := &t.Tools[i]
		if u.Name == "" {
			return fmt.Errorf("tools[%d] has no name", i)
		}
		if u.Input == nil {
			u.Input = map[string]any{}
		}
		if u.input, err = newValue(u.Input); err != nil {
			return fmt.Errorf("tools[%d] (%s): input: %w", i, u.Name, err)
		}
	}
	return nil
}

// fails reports whether the turn leaves nothing in the conversation.
func (t *turn) fails() bool { return t.Error != nil || t.Cut }

// uses returns how often the turn may be used; -1: without end.
func (t *turn) uses() int {
	if t.Repeat == nil {
		return 1
	}
	return *t.Repeat
}
