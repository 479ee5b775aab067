package agents_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover"
	"github.com/drover-dev/drover/agents"
)

// A file of steps. One fails, is fixed, and the workflow goes on behind the other.
func ExampleRuntime_Workflow() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "ship.yaml"), []byte(`
params: {version: {required: true}}
steps:
  - id: build
    shell: echo "built $DROVER_PARAM_VERSION" | tee -a log
  - id: ship
    needs: build
    shell: test -e permit
outputs: {said: "${{ steps.build.output }}"}
`), 0o600); err != nil {
		log.Fatal(err)
	}
	rt, err := agents.Open(ctx, agents.Config{Config: drover.Config{Dir: dir, Home: filepath.Join(dir, "state")}})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	w, err := rt.Workflow(ctx, agents.Workflow{File: "ship.yaml", Params: map[string]string{"version": "1.4"}})
	if err != nil {
		log.Fatal(err)
	}
	if w, err = rt.Wait(ctx, w.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Status, w.Error)

	if err := os.WriteFile(filepath.Join(dir, "permit"), nil, 0o600); err != nil {
		log.Fatal(err)
	}
	if _, err := rt.Resume(ctx, w.ID); err != nil {
		log.Fatal(err)
	}
	if w, err = rt.Wait(ctx, w.ID); err != nil {
		log.Fatal(err)
	}
	said, err := rt.Result(ctx, w.ID)
	if err != nil {
		log.Fatal(err)
	}
	built, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s%s", w.Status, said, built)
	// Output:
	// failed step ship: failed: exit code 1
	// completed {
	//   "said": "built 1.4"
	// }
	// built 1.4
}
