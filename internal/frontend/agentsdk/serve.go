package agentsdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// Driven is the session that the program drives. All fields are required.
type Driven struct {
	API     control.API
	ID      task.ID
	Decides bool    // the program decides about permissions; it always answers forms of MCP servers
	Stream  *Stream // writes to the [Conn]
}

// Attend asks the program the questions of the session, unless silent, and reports changes of the permission mode that
// others make, until ctx ends.
func (c *Conn) Attend(ctx context.Context, s Driven, silent bool) {
	var asking sync.WaitGroup
	if !silent {
		asking.Go(func() { c.questions(ctx, s) })
	}
	c.followMode(ctx, s)
	asking.Wait()
}

// configure changes the settings of the main agent for the program.
func (c *Conn) configure(ctx context.Context, s Driven, req control.ConfigureRequest) (control.Settings, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	now, err := s.API.Configure(ctx, req)
	if err == nil {
		s.Stream.useModel(now.Model, now.Mode)
		c.mode = now.Mode
	}
	return now, err
}

// followMode prints changes of the permission mode, for example by an approved plan, until ctx ends.
func (c *Conn) followMode(ctx context.Context, s Driven) {
	now, err := c.printMode(ctx, s)
	for err == nil {
		if now, err = s.API.State(ctx, control.StateRequest{After: now.Version, Wait: time.Minute}); err == nil {
			now, err = c.printMode(ctx, s)
		}
	}
	_, _ = c.printMode(context.WithoutCancel(ctx), s) // a change just before the end
}

// printMode prints the mode if the program does not know it. The answer to a request of the program has the mode too.
func (c *Conn) printMode(ctx context.Context, s Driven) (control.State, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	now, err := s.API.State(ctx, control.StateRequest{})
	if err != nil || now.Settings == nil || now.Settings.Mode == c.mode {
		return now, err
	}
	if c.mode != "" {
		s.Stream.useModel(now.Settings.Model, now.Settings.Mode)
		s.Stream.changeMode(now.Settings.Mode)
	}
	c.mode = now.Settings.Mode
	return now, nil
}

// Serve handles the lines of the program until it closes stdin, then returns nil. It waits for requests that it has
// begun, until ctx ends.
func (c *Conn) Serve(ctx context.Context, s Driven) error {
	var work sync.WaitGroup
	defer work.Wait()
	c.mu.Lock()
	early := c.early
	c.early = nil
	c.mu.Unlock()
	slots := make(chan struct{}, 16) // for slow requests
	one := func(l line) {
		switch l.Type {
		case "user":
			if err := c.prompt(ctx, s, l); err != nil {
				c.warning("a prompt was not accepted: %v", err)
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
			c.warning("a line of type %s was skipped: it is unknown", quoted(l.Type))
		}
	}
	for _, l := range early {
		one(l)
	}
	for {
		select {
		case l, more := <-c.lines:
			if !more {
				if !c.prompted {
					c.warning("note: no prompt came before stdin was closed")
				}
				return nil
			}
			one(l)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// quoted is a name of the program for people.
func quoted(s string) string { return excerpt.Line(fmt.Sprintf("%q", s), 80) }

// prompt queues the prompt of a user line.
func (c *Conn) prompt(ctx context.Context, s Driven, l line) error {
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
				c.warning("a block of type %s of a prompt was left out: it is neither text nor an image in base64", quoted(b.Type))
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
	c.prompted = true
	s.Stream.queue(l.UUID)
	return s.API.Prompt(ctx, control.PromptRequest{Text: text, Images: images})
}

// imageOf returns the image of a block.
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
		return control.Image{}, fmt.Errorf("its source is of type %.40q: use base64", source.Type)
	}
	return control.Image{MediaType: source.MediaType, Data: source.Data}, nil
}

// slow reports whether a request may wait for tasks.
func slow(subtype string) bool {
	switch subtype {
	case "interrupt", "mcp_message", "stop_task", "background_tasks", "get_task_output":
		return true
	}
	return false
}
