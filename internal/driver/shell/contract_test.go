package shell_test

import (
	"encoding/json"
	"testing"

	"github.com/drover-dev/drover/internal/driver/shell"
	"github.com/drover-dev/drover/task"
	"github.com/drover-dev/drover/test/tasktest"
)

func TestContract(t *testing.T) {
	command := func(line string) func(*testing.T) (task.Driver, json.RawMessage) {
		return func(t *testing.T) (task.Driver, json.RawMessage) {
			input, err := json.Marshal(shell.Command{Line: line})
			if err != nil {
				t.Fatal(err)
			}
			return shell.New(shell.Config{}), input
		}
	}
	tasktest.Run(t, tasktest.Config{Long: command("sleep 630"), Short: command("printf 'the last '; sleep 0.05; printf word"), Prints: "the last word"})
}
