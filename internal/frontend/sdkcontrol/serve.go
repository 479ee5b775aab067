package sdkcontrol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Session is what the program drives. All fields are required.
type Session struct {
	API     control.API
	ID      task.ID
	Version string
	Decides bool // the program decides about permissions; it always answers forms of MCP servers
	// Prompt queues a prompt of the user. The UUID is the program's name of it, and may
	// be empty.
	Prompt func(ctx context.Context, req control.PromptRequest, uuid string) error
	// Waiting are the program's names of the prompts that no turn has begun with.
	Waiting func() []string
	// Configure changes the settings of the main agent, as the method of the API does.
	Configure func(context.Context, control.ConfigureRequest) (control.Settings, error)
	// Told returns when the lines of all that has happened so far are printed.
	Told func()
	// Line prints a line of stream-json with its stamp, such as a status.
	Line func(fields map[string]any)
	// Servers are the MCP servers of the main agent.
	Servers func() []Server
	// Context is how much of the model's window the conversation takes, in tokens.
	Context func() (used, window int64)
	// Cost is what the session has cost so far in US dollars.
	Cost func() float64
}

// Server is an MCP server and how it is.
type Server struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// Serve does what the program asks for until it closes stdin, then returns nil. What it
// has begun goes on until it is done or ctx ends, and is waited for.
func (c *Conn) Serve(ctx context.Context, s Session) error {
	var work sync.WaitGroup
	defer work.Wait()
	c.mu.Lock()
	early := c.early
	c.early = nil
	c.mu.Unlock()
	slots := make(chan struct{}, 16) // requests that take their time
	one := func(l line) {
		switch l.Type {
		case "user":
			if err := c.prompt(ctx, s, l); err != nil {
				c.warning("a prompt was not taken: %v", err)
			}
		case "control_request":
			name := subtype(l.Request)
			if !slow(name) { // in order with the prompts around them
				v, err := c.request(ctx, s, name, l)
				c.answer(l.RequestID, v, err)
				return
			}
			slots <- struct{}{}
			work.Go(func() {
				defer func() { <-slots }()
				if v, err := c.request(ctx, s, name, l); err != nil || name != "interrupt" {
					c.answer(l.RequestID, v, err)
				}
			})
		case "control_cancel_request", "keep_alive", "update_environment_variables":
		default:
			c.warning("a line of type %s was passed over: it is not known", excerpt.Line(quoted(l.Type), 80))
		}
	}
	for _, l := range early {
		one(l)
	}
	for {
		select {
		case l, more := <-c.lines:
			if !more {
				return nil
			}
			one(l)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// prompt queues what a user line holds.
func (c *Conn) prompt(ctx context.Context, s Session, l line) error {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(l.Message, &m); err != nil {
		return fmt.Errorf("read its message: %w", err)
	}
	var text string
	var images []control.Image
	if json.Unmarshal(m.Content, &text) != nil {
		var blocks []agent.Block
		if err := json.Unmarshal(m.Content, &blocks); err != nil {
			return fmt.Errorf("read its content: %w", err)
		}
		var parts []string
		for _, b := range blocks {
			if image, err := imageOf(b); b.Type == "image" && err == nil {
				images = append(images, image)
				continue
			}
			if b.Type != "text" {
				c.warning("a block of type %s of a prompt was left out: only text and images in base64 are taken", excerpt.Line(quoted(b.Type), 40))
				parts = append(parts, "["+b.Type+" left out]")
				continue
			}
			parts = append(parts, b.Text)
		}
		text = strings.Join(parts, "\n\n")
	}
	if strings.TrimSpace(text) == "" && len(images) == 0 {
		return errors.New("it is empty")
	}
	return s.Prompt(ctx, control.PromptRequest{Text: text, Images: images}, l.UUID)
}

// imageOf is the image of a block, which holds it.
func imageOf(b agent.Block) (control.Image, error) {
	var source struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      []byte `json:"data"`
	}
	if err := json.Unmarshal(b.Source, &source); err != nil {
		return control.Image{}, fmt.Errorf("its source: %w", err)
	}
	if source.Type != "base64" {
		return control.Image{}, fmt.Errorf("its source is of type %.40q: only base64 is taken", source.Type)
	}
	return control.Image{MediaType: source.MediaType, Data: source.Data}, nil
}

// slow reports whether a request waits for tasks.
func slow(subtype string) bool {
	switch subtype {
	case "interrupt", "mcp_message", "stop_task", "background_tasks", "get_task_output":
		return true
	}
	return false
}
