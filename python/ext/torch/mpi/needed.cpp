/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/needed.hpp"

#include <limits>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <unordered_map>
#include <unordered_set>

namespace weft_torch::mpi
{

namespace
{

using torch::autograd::GraphTask;
/* The nodes that the engine will run; empty if it runs all. */
using Plan = std::unordered_map<Node *, GraphTask::ExecInfo>;
using Nodes = std::unordered_set<Node *>;

constexpr uint64_t never = std::numeric_limits<uint64_t>::max();

bool runs(const Plan &plan, Node *node)
{
    auto found = plan.find(node);

    return found != plan.end() && found->second.should_execute();
}

/* The sequence number of the oldest input, 0 if one of them is a leaf. Earlier
 * communications are not part of this backward pass, on any rank. */
uint64_t first_input(const Plan &plan)
{
    uint64_t first = never;

    for (const auto &[node, info] : plan) {
        bool leaf =
            dynamic_cast<torch::autograd::AccumulateGrad *>(node) != nullptr;
        bool wanted = info.captures_ != nullptr || (leaf && info.needed_);

        if (wanted) {
            first = leaf ? 0 : std::min(first, node->sequence_nr());
        }
        if (first == 0) {
            break;
        }
    }
    return first == never ? 0 : first;
}

/* All nodes of the graph that lead to a target. */
class Leading
{
  public:
    Leading(const Nodes &graph, const Nodes &targets)
        : graph_(graph), targets_(targets)
    {
        for (Node *node : graph) {
            look_at(node);
        }
    }
    bool leads(Node *node) const
    {
        auto found = known_.find(node);

        return found != known_.end() && found->second;
    }

  private:
    /* The search is depth first, without recursion because graphs are deep. */
    void look_at(Node *start)
    {
        std::vector<Node *> stack{start};

        while (!stack.empty()) {
            Node *node = stack.back();
            size_t before = stack.size();

            if (known_.count(node) == 0) {
                push_unknown(node, stack);
            }
            if (stack.size() == before) {
                stack.pop_back();
                known_.emplace(node, leads_now(node));
            }
        }
    }
    void push_unknown(Node *node, std::vector<Node *> &stack) const
    {
        for (const Edge &edge : node->next_edges()) {
            Node *next = edge.function.get();

            if (graph_.count(next) != 0 && known_.count(next) == 0) {
                stack.push_back(next);
            }
        }
    }
    bool leads_now(Node *node) const
    {
        bool any = targets_.count(node) != 0;

        for (const Edge &edge : node->next_edges()) {
            any = any || leads(edge.function.get());
        }
        return any;
    }

    const Nodes &graph_;
    const Nodes &targets_;
    std::unordered_map<Node *, bool> known_;
};

/* The engine must know all successors of a node that it runs. */
bool can_run(const Nodes &graph, const Node *node)
{
    for (const Edge &edge : node->next_edges()) {
        if (edge.is_valid() && graph.count(edge.function.get()) == 0) {
            return false;
        }
    }
    return true;
}

/* Was a gradient for one of `added` dropped? That is so if a node that leads to
 * it ran before the join, or if it is a root of the backward pass. */
bool too_late(const Plan &plan, const Nodes &graph, const Nodes &added,
              const Node *join)
{
    Nodes waiting = added;

    for (Node *node : graph) {
        bool ran = node != join && node->sequence_nr() != never &&
                   node->sequence_nr() > join->sequence_nr() &&
                   runs(plan, node);

        for (const Edge &edge : node->next_edges()) {
            if (ran && added.count(edge.function.get()) != 0) {
                return true;
            }
            waiting.erase(edge.function.get());
        }
    }
    for (const Edge &edge : join->next_edges()) {
        waiting.erase(edge.function.get());
    }
    return !waiting.empty();
}

} // namespace

void need_all_before(Chain &chain, Node *join)
{
    namespace autograd = torch::autograd;
    const Plan *plan = autograd::get_current_graph_task_exec_info();
    const Nodes *graph = autograd::get_current_graph_task_nodes_in_graph();

    if (plan == nullptr || plan->empty() || graph == nullptr) {
        return;
    }
    Nodes targets;
    bool all = true;
    uint64_t since = first_input(*plan);

    for (const NodePtr &node :
         chain.before(join, autograd::get_current_graph_task_id())) {
        if (node->sequence_nr() > since && graph->count(node.get()) != 0) {
            targets.insert(node.get());
            all = all && runs(*plan, node.get());
        }
    }
    if (all) {
        return;
    }
    Leading leading(*graph, targets);
    Nodes added;

    for (Node *node : *graph) {
        if (leading.leads(node) && !runs(*plan, node)) {
            added.insert(node);
            all = all || !can_run(*graph, node);
        }
    }
    if (all || too_late(*plan, *graph, added, join)) {
        return;
    }
    for (Node *node : added) {
        /* The plan is the engine's own, which it reads again for each edge. */
        const_cast<Plan *>(plan)->operator[](node).needed_ = true;
    }
}

} // namespace weft_torch::mpi
