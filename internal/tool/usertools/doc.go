// Package usertools has the tools with which a model addresses the user:
// AskUserQuestion asks questions, report_intent announces the next step, and
// task_complete reports that all work is done.
//
// It owns the texts of these tools. A question is validated before it is shown. If
// no answer comes, the result asks the model to decide by itself. The package does not know
// who answers, and does not verify that work is complete.
package usertools
