// Package subagent is the work that a main agent hands to other agents: what
// sorts of agents there are ([Definition], [Builtin]), the driver that runs one
// as a task ([Driver]), and how a program takes part in it ([Hooks]).
//
// A subagent gets its instructions and the prompt, and nothing else of the
// agent that asked for it. The driver promises that what the agent says and
// does is in its output file as it happens, that its figures are the task's
// progress, and that a run whose conversation did not come to its end is never
// recorded as completed. What an [Assembly] opens at its Start is closed by one
// End, however the run ends.
//
// It does not choose models, tools or permissions: whoever makes the [Driver]
// gives it a function that puts the agent together. Package agents does so for
// programs.
package subagent
