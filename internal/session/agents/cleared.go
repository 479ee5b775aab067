package agents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/findtool"
	"github.com/drover-dev/drover/task"
)

// keepResult stores the result of a call that later requests leave out, and returns how the agent
// reads it again. The result of a call that only reads is not stored: the call can be made again. The name of the
// file is the same each time. What tells the agent how to work, and answers of the user, stay, and so
// does everything of an agent that cannot read a file.
func (k *Environment) keepResult(_ context.Context, c agent.Call, text string) (string, error) {
	has := func(name string) bool {
		return slices.ContainsFunc(k.Config.Tools, func(t agent.Tool) bool { return t.Spec().Name == name })
	}
	switch c.Name {
	case "Read", "Glob", "Grep":
		return fmt.Sprintf("Call %s with the same input to see it again.", c.Name), nil
	case "Skill", "AskUserQuestion", task.ExitPlanMode, findtool.Search:
		return "", fmt.Errorf("keep the result of %s: it stays in the conversation", c.Name)
	}
	id := sha256.Sum256([]byte(c.ID))
	place := k.s.Place
	name := fmt.Sprintf("result-%s-%s.txt", cmp.Or(k.Me.ID, place.ID()), hex.EncodeToString(id[:6]))
	path := filepath.Join(place.Tasks(), name)
	if !has("Read") || !k.Gate().MayRead(path) {
		return "", fmt.Errorf("keep the result of %s: the agent may not read %s", c.Name, path)
	}
	if err := place.Project().Root().WriteAtomic(path, []byte(text)); err != nil {
		return "", fmt.Errorf("keep the result of %s: %w", c.Name, err)
	}
	return "Read " + path + " to see it again.", nil
}
