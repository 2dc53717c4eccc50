"""A LangGraph agent that records itself, runs again without its model, is forked, and merged by its own reducers."""

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langgraph.graph import MessagesState, StateGraph

import rath_bridge as rb
from rath_langgraph import wrap

model = GenericFakeChatModel(messages=iter(["Booked for 7 pm.", "Booked for 8 pm.", "And a cake."]))
graph = StateGraph(MessagesState).add_node("agent", lambda s: {"messages": [model.invoke(s["messages"])]})  # type: ignore[index]
store = rb.open_store("memory:")
agent = wrap(graph.set_entry_point("agent").compile(), store, checkpointer="rath")
agent.invoke({"messages": [("user", "A table for two, 7 pm.")]}, {"configurable": {"thread_id": "ann"}})
ann = store.session("langgraph/ann")
print("replayed:", rb.replay(ann, agent).equal)  # the model is not asked
theirs = agent(ann.fork("later").append(rb.message("user", "Rather 8 pm.")))
ours = agent(ann.append(rb.message("user", "It is her birthday.")))
both = ours.merge(theirs, strategy="state", merge_state=agent.merge_state)
print("\n".join(f"{m.role}: {m.text}" for m in both.messages()))
