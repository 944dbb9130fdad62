! cddp.f90 - a part of cddp for Fortran 2018, by ISO_C_BINDING: group, gradients and error text, and
! what cddp_collectives.f90, cddp_data.f90 and cddp_recovery.f90 have. Compile the four, in the order
! of their modules' use, with the program; link -lcddp.
!
! Functions give cddp_ok or another status; cddp_must() ends the program with the error's text.
! Parameter indices, ranks and positions count from 0, as in C. Parameters and gradients are declared
! target: cddp keeps their addresses, and calls that do not name them change them.
module cddp
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit, int64, real32, real64
    use cddp_collectives
    use cddp_data
    use cddp_recovery
    implicit none
    private

    public :: cddp_group_create, cddp_group_destroy, cddp_group_rank, cddp_group_world_size
    public :: cddp_param_of, cddp_ddp_create, cddp_ddp_begin, cddp_ddp_begin_micro_batch
    public :: cddp_ddp_grad_ready, cddp_ddp_wait
    public :: cddp_ddp_grads_ready, cddp_ddp_broadcast, cddp_ddp_follow
    public :: cddp_ddp_destroy, cddp_last_error, cddp_must
    public :: cddp_hook_bf16, cddp_hook_fp16
    ! Of cddp_collectives.
    public :: cddp_all_reduce, cddp_broadcast, cddp_all_gather, cddp_barrier
    public :: cddp_f32, cddp_f64, cddp_i32, cddp_i64
    public :: cddp_op_sum, cddp_op_mean, cddp_op_min, cddp_op_max, cddp_op_prod
    ! Of cddp_data.
    public :: cddp_share, cddp_share_of
    public :: cddp_sampler_create, cddp_sampler_destroy, cddp_sampler_set_epoch, cddp_sampler_at
    public :: cddp_loader_options, cddp_loader_create, cddp_loader_destroy, cddp_loader_begin
    public :: cddp_batch, cddp_loader_next, cddp_loader_batch_count
    public :: cddp_order_sequential, cddp_order_random, cddp_order_torch
    ! Of cddp_recovery.
    public :: cddp_recovery_options, cddp_recovery_create, cddp_recovery_destroy
    public :: cddp_recovery_add, cddp_recovery_add_bytes, cddp_recovery_add_ddp
    public :: cddp_recovery_add_callbacks
    public :: cddp_recovery_step, cddp_recovery_refuse, cddp_recovery_info, cddp_recovery_get_info
    public :: cddp_recovery_rejoin
    public :: cddp_recovery_go_on, cddp_recovery_replaced, cddp_recovery_stop
    public :: cddp_stop_on_signals

    integer(c_int), parameter, public :: cddp_ok = 0
    integer, parameter :: name_bytes = 512

    ! cddp_param of types.h.
    type, bind(c) :: c_param
        type(c_ptr) :: name
        integer(c_int) :: kind, dims
        integer(c_int64_t) :: shape(8)
        type(c_ptr) :: values, grad
        integer(c_int32_t) :: flags, reserved
        integer(c_int64_t) :: reserved2(2)
    end type

    ! cddp_step of ddp.h.
    type, bind(c) :: c_step
        integer(c_size_t) :: struct_size
        integer(c_int64_t) :: number, samples
        integer(c_int) :: kind, reserved
        integer(c_int64_t) :: micro_batch, micro_batches
    end type

    ! How a process joins a group: see cddp_group_options of group.h. What is not set is the default.
    type, public :: cddp_group_options
        character(len=:), allocatable :: backend, rendezvous, token, job, device
        integer :: rank = 0, world_size = 0 ! 0: the launcher says
        integer :: local_rank = 0, local_world_size = 0, generation = 0
        integer :: timeout_ms = 0, join_timeout_ms = 0
        logical :: deterministic = .false.
    end type

    ! cddp_group_options of group.h.
    type, bind(c) :: c_group_options
        integer(c_size_t) :: struct_size
        type(c_ptr) :: backend, rendezvous, token, job
        integer(c_int) :: rank, world_size, local_rank, local_world_size
        integer(c_int32_t) :: generation, timeout_ms
        type(c_ptr) :: device
        logical(c_bool) :: deterministic, elastic
        integer(c_int8_t) :: reserved(2)
        integer(c_int32_t) :: join_timeout_ms
        type(c_ptr) :: stream
    end type

    ! How gradients are reduced: see cddp_ddp_options of ddp.h. What is not set is the default.
    type, public :: cddp_ddp_options
        integer(int64) :: first_bucket_bytes = 0, bucket_bytes = 0, part_bytes = 0
        integer, allocatable :: ready_order(:) ! indices of all parameters, from 0
        logical :: allow_unused = .false.
        type(c_funptr) :: hook = c_null_funptr ! c_funloc(cddp_hook_bf16), say
        type(c_ptr) :: hook_state = c_null_ptr
        character(len=:), allocatable :: config
    end type

    ! cddp_ddp_options of ddp.h.
    type, bind(c) :: c_ddp_options
        integer(c_size_t) :: struct_size, first_bucket_bytes, bucket_bytes
        type(c_ptr) :: ready_order
        logical(c_bool) :: allow_unused
        type(c_ptr) :: flat_grads
        logical(c_bool) :: share_flat_grads
        type(c_funptr) :: hook
        type(c_ptr) :: hook_state, config
        logical(c_bool) :: shard, may_move_grads
        integer(c_size_t) :: part_bytes
    end type

    ! A parameter, its gradient and its name: see cddp_param_of().
    type, public :: cddp_param
        character(kind=c_char) :: name(name_bytes) = c_null_char
        type(c_param) :: c
    end type

    interface cddp_param_of
        module procedure param_of_real32, param_of_real64
    end interface
    interface
        integer(c_int) function c_group_create(options, out) bind(c, name="cddp_group_create")
            import :: c_group_options, c_int, c_ptr
            type(c_group_options), intent(in) :: options
            type(c_ptr), intent(out) :: out
        end function
        subroutine cddp_group_destroy(group) bind(c, name="cddp_group_destroy")
            import :: c_ptr
            type(c_ptr), value :: group
        end subroutine
        integer(c_int) function cddp_group_rank(group) bind(c, name="cddp_group_rank")
            import :: c_int, c_ptr
            type(c_ptr), value :: group
        end function
        integer(c_int) function cddp_group_world_size(group) bind(c, name="cddp_group_world_size")
            import :: c_int, c_ptr
            type(c_ptr), value :: group
        end function
        integer(c_int) function c_ddp_create(group, params, param_count, buffers, buffer_count, &
            options, out) bind(c, name="cddp_ddp_create")
            import :: c_ddp_options, c_int, c_ptr, c_size_t
            type(c_ptr), value :: group, params, buffers
            integer(c_size_t), value :: param_count, buffer_count
            type(c_ddp_options), intent(in) :: options
            type(c_ptr), intent(out) :: out
        end function
        integer(c_int) function c_ddp_begin(ddp, how) bind(c, name="cddp_ddp_begin")
            import :: c_int, c_ptr, c_step
            type(c_ptr), value :: ddp
            type(c_step), intent(in) :: how
        end function
        integer(c_int) function c_ddp_grad_ready(ddp, index) bind(c, name="cddp_ddp_grad_ready")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: ddp
            integer(c_size_t), value :: index
        end function
        integer(c_int) function c_ddp_grads_ready(ddp, first, count) bind(c, name="cddp_ddp_grads_ready")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: ddp
            integer(c_size_t), value :: first, count
        end function
        integer(c_int) function c_ddp_broadcast(ddp, root, flags) bind(c, name="cddp_ddp_broadcast")
            import :: c_int, c_int32_t, c_ptr
            type(c_ptr), value :: ddp
            integer(c_int), value :: root
            integer(c_int32_t), value :: flags
        end function
        integer(c_int) function c_ddp_follow(ddp, everyone) bind(c, name="cddp_ddp_follow")
            import :: c_bool, c_int, c_ptr
            type(c_ptr), value :: ddp
            logical(c_bool), intent(out) :: everyone
        end function
        integer(c_int) function cddp_ddp_wait(ddp) bind(c, name="cddp_ddp_wait")
            import :: c_int, c_ptr
            type(c_ptr), value :: ddp
        end function
        subroutine cddp_ddp_destroy(ddp) bind(c, name="cddp_ddp_destroy")
            import :: c_ptr
            type(c_ptr), value :: ddp
        end subroutine
        ! Buckets in 16 bits: for the option hook only.
        integer(c_int) function cddp_hook_bf16(state, bucket, flags, work) &
            bind(c, name="cddp_hook_bf16")
            import :: c_int, c_ptr
            type(c_ptr), value :: state, bucket, work
            integer(c_int), value :: flags
        end function
        integer(c_int) function cddp_hook_fp16(state, bucket, flags, work) &
            bind(c, name="cddp_hook_fp16")
            import :: c_int, c_ptr
            type(c_ptr), value :: state, bucket, work
            integer(c_int), value :: flags
        end function
        type(c_ptr) function c_last_error() bind(c, name="cddp_last_error")
            import :: c_ptr
        end function
        integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
        end function
    end interface

contains

    ! What failed in the last call that failed.
    function cddp_last_error() result(text)
        character(len=:), allocatable :: text
        character(kind=c_char), pointer :: bytes(:)
        type(c_ptr) :: at
        integer :: i

        at = c_last_error()
        call c_f_pointer(at, bytes, [c_strlen(at)])
        allocate (character(len=size(bytes)) :: text)
        do i = 1, size(bytes)
            text(i:i) = bytes(i)
        end do
    end function

    ! End the program unless status is cddp_ok.
    subroutine cddp_must(status)
        integer(c_int), intent(in) :: status

        if (status /= cddp_ok) then
            write (error_unit, '(a)') cddp_last_error()
            stop 1, quiet=.true. ! for "error stop", gfortran first looks for a backtrace
        end if
    end subroutine

    ! A text as C reads it, in memory that lives as long as bytes; not allocated: NULL.
    function c_text(text, bytes) result(at)
        character(len=:), allocatable, intent(in) :: text
        character(kind=c_char, len=:), allocatable, target, intent(out) :: bytes
        type(c_ptr) :: at

        at = c_null_ptr
        if (allocated(text)) then
            bytes = text // c_null_char
            at = c_loc(bytes)
        end if
    end function

    ! Join as the options say; what they leave open, as the launcher says.
    integer(c_int) function cddp_group_create(group, options) result(status)
        type(c_ptr), intent(out) :: group
        type(cddp_group_options), intent(in), optional :: options
        character(kind=c_char, len=:), allocatable, target :: backend, rendezvous, token, job, device
        type(cddp_group_options) :: given
        type(c_group_options) :: how

        if (present(options)) given = options
        how = c_group_options(c_sizeof(how), c_text(given%backend, backend), &
                              c_text(given%rendezvous, rendezvous), c_text(given%token, token), &
                              c_text(given%job, job), given%rank, given%world_size, &
                              given%local_rank, given%local_world_size, given%generation, &
                              given%timeout_ms, c_text(given%device, device), &
                              logical(given%deterministic, c_bool), .false._c_bool, 0, &
                              given%join_timeout_ms, c_null_ptr)
        status = c_group_create(how, group)
    end function


    ! A parameter whose name, and the place of its array, C can read. What cannot be one keeps its
    ! reason in place of its name and has no place, so that cddp_ddp_create() refuses it with both.
    function param_of(name, kind, lengths, grad_lengths, values, grad, side_by_side) result(param)
        character(len=*), intent(in) :: name
        integer(c_int), intent(in) :: kind
        integer, intent(in) :: lengths(:), grad_lengths(:) ! the arrays' shapes
        type(c_ptr), intent(in) :: values, grad
        logical, intent(in) :: side_by_side ! both arrays' elements are
        type(cddp_param) :: param
        character(len=name_bytes - 1) :: text
        integer :: dims, i
        logical :: one_shape

        dims = size(lengths)
        one_shape = size(grad_lengths) == dims
        if (one_shape) one_shape = all(grad_lengths == lengths)
        text = name
        if (len_trim(name) > len(text)) then
            text = name(1:40) // "... (a name longer than 511 characters)"
        else if (.not. side_by_side) then
            text = trim(name) // " (its elements do not lie side by side, and cddp takes no copy)"
        else if (.not. one_shape) then
            text = trim(name) // " (it and its gradient differ in shape)"
        end if
        do i = 1, len_trim(text)
            param%name(i) = text(i:i)
        end do
        param%c%name = c_null_ptr ! cddp_ddp_create() knows where the name lies by then
        param%c%kind = kind
        param%c%dims = min(dims, size(param%c%shape))
        param%c%shape = 0
        if (dims > size(param%c%shape)) then
            param%c%dims = 1
            param%c%shape(1) = product(lengths)
        else
            param%c%shape(1:dims) = lengths(dims:1:-1) ! the last varies slowest: C's first
        end if
        param%c%values = c_null_ptr
        param%c%grad = c_null_ptr
        param%c%flags = 0
        param%c%reserved = 0
        param%c%reserved2 = 0
        if (side_by_side .and. one_shape .and. len_trim(name) <= len(text)) then
            param%c%values = values
            param%c%grad = grad
        end if
    end function

    ! A parameter and where backward writes its gradient: arrays of any rank, which stay the
    ! caller's, have one shape and whose elements lie side by side. cddp keeps the arrays' own
    ! addresses, so nothing may be copied on the way: not a(1,:), and no pointer to it.
    function param_of_real32(name, values, grad) result(param)
        character(len=*), intent(in) :: name
        real(real32), intent(in), target :: values(..), grad(..)
        type(cddp_param) :: param
        integer :: i

        param = param_of(name, cddp_f32, [(size(values, i), i=1, rank(values))], &
                         [(size(grad, i), i=1, rank(grad))], c_loc(values), c_loc(grad), &
                         is_contiguous(values) .and. is_contiguous(grad))
    end function

    function param_of_real64(name, values, grad) result(param)
        character(len=*), intent(in) :: name
        real(real64), intent(in), target :: values(..), grad(..)
        type(cddp_param) :: param
        integer :: i

        param = param_of(name, cddp_f64, [(size(values, i), i=1, rank(values))], &
                         [(size(grad, i), i=1, rank(grad))], c_loc(values), c_loc(grad), &
                         is_contiguous(values) .and. is_contiguous(grad))
    end function

    ! Compare manifests, broadcast rank 0's parameters, plan the buckets.
    integer(c_int) function cddp_ddp_create(group, params, ddp, options) result(status)
        type(c_ptr), intent(in) :: group
        type(cddp_param), intent(in), target :: params(:)
        type(c_ptr), intent(out) :: ddp
        type(cddp_ddp_options), intent(in), optional :: options
        character(kind=c_char, len=:), allocatable, target :: config
        integer(c_size_t), allocatable, target :: order(:)
        type(c_param), target :: list(size(params))
        type(cddp_ddp_options) :: given
        type(c_ddp_options) :: how
        integer :: i

        do i = 1, size(params)
            list(i) = params(i)%c
            list(i)%name = c_loc(params(i)%name)
        end do
        if (present(options)) given = options
        how = c_ddp_options(c_sizeof(how), given%first_bucket_bytes, given%bucket_bytes, c_null_ptr, &
                            logical(given%allow_unused, c_bool), c_null_ptr, .false._c_bool, &
                            given%hook, given%hook_state, c_text(given%config, config), &
                            .false._c_bool, .false._c_bool, given%part_bytes)
        if (allocated(given%ready_order)) then
            if (size(given%ready_order) /= size(params)) then
                error stop "cddp_ddp_create: ready_order has not one index for each parameter"
            end if
            order = int(given%ready_order, c_size_t)
            how%ready_order = c_loc(order)
        end if
        status = c_ddp_create(group, c_loc(list), size(params, kind=c_size_t), c_null_ptr, &
                              0_c_size_t, how, ddp)
    end function

    ! Begin the backward of this step, of which this rank has `samples` samples. A step that is
    ! divided: of micro-batch micro_batch of micro_batches, those of all ranks together.
    integer(c_int) function cddp_ddp_begin(ddp, step, samples, micro_batch, micro_batches) &
        result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: step, samples
        integer, intent(in), optional :: micro_batch, micro_batches
        type(c_step) :: how

        how = c_step(c_sizeof(how), int(step, c_int64_t), int(samples, c_int64_t), 0, 0, 0, 0)
        if (present(micro_batch)) how%micro_batch = micro_batch
        if (present(micro_batches)) how%micro_batches = micro_batches
        status = c_ddp_begin(ddp, how)
    end function

    ! Begin the backward of a micro-batch, from 0, of so many that all ranks together have in this
    ! step. cddp adds up their gradients, in the same order on any number of ranks.
    integer(c_int) function cddp_ddp_begin_micro_batch(ddp, step, micro_batch, micro_batches) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: step, micro_batch, micro_batches
        integer(c_int), parameter :: by_micro_batches = 3 ! CDDP_STEP_BY_MICRO_BATCHES
        type(c_step) :: how

        how = c_step(c_sizeof(how), int(step, c_int64_t), 0_c_int64_t, by_micro_batches, 0, &
                     int(micro_batch, c_int64_t), int(micro_batches, c_int64_t))
        status = c_ddp_begin(ddp, how)
    end function

    ! Backward has finished gradient index, from 0.
    integer(c_int) function cddp_ddp_grad_ready(ddp, index) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: index

        status = c_ddp_grad_ready(ddp, int(index, c_size_t))
    end function

    ! The same of count gradients, from first on.
    integer(c_int) function cddp_ddp_grads_ready(ddp, first, count) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: first, count

        status = c_ddp_grads_ready(ddp, int(first, c_size_t), int(count, c_size_t))
    end function

    ! Every rank gets root's parameters, as after root has read a checkpoint.
    integer(c_int) function cddp_ddp_broadcast(ddp, root) result(status)
        type(c_ptr), intent(in) :: ddp
        integer, intent(in) :: root

        status = c_ddp_broadcast(ddp, int(root, c_int), 1_c_int32_t) ! CDDP_BROADCAST_PARAMS
    end function

    ! For a rank without a backward in this step: take part in that of the others, with nothing to
    ! contribute. everyone: no rank had a backward.
    integer(c_int) function cddp_ddp_follow(ddp, everyone) result(status)
        type(c_ptr), intent(in) :: ddp
        logical(c_bool), intent(out) :: everyone

        status = c_ddp_follow(ddp, everyone)
    end function

end module
