# cusim_switch(void **save, void *load): leaves one fiber for another.
#
# Pushes the registers that a called function must keep (System V ABI for x86-64), stores the stack
# pointer in *save, and returns on the stack `load`. cusim_entry is where a new fiber's first
# "return" goes. See block.cc.
    .text
    .globl cusim_switch
    .type cusim_switch, @function
cusim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cusim_switch, . - cusim_switch

    .globl cusim_entry
    .type cusim_entry, @function
cusim_entry:
    andq $-16, %rsp
    call cusim_fiber_main
    ud2
    .size cusim_entry, . - cusim_entry
    .section .note.GNU-stack, "", @progbits
