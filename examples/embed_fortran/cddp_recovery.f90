! cddp_recovery.f90 - keeps the state of a loop in memory that outlives its processes (recovery.h) for
! Fortran 2018; a part of module cddp, which passes it on.
!
!     call cddp_must(cddp_recovery_create(group, recovery))
!     call cddp_must(cddp_recovery_add_ddp(recovery, ddp))
!     call cddp_must(cddp_recovery_add(recovery, "momentum", momentum))
!     step = 0
!     do
!         call cddp_must(cddp_recovery_step(recovery, step, action))
!         if (step >= steps .or. action == cddp_recovery_stop) exit
!         (forward, backward, update)
!         step = step + 1
!     end do
!     (save a checkpoint)
module cddp_recovery
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    implicit none
    private

    public :: cddp_recovery_create, cddp_recovery_destroy
    public :: cddp_recovery_add, cddp_recovery_add_bytes, cddp_recovery_add_ddp
    public :: cddp_recovery_add_callbacks
    public :: cddp_recovery_step, cddp_recovery_refuse, cddp_recovery_get_info, cddp_recovery_rejoin
    public :: cddp_stop_on_signals

    ! What the loop does next: see cddp_recovery_action of recovery.h.
    integer(c_int), parameter, public :: cddp_recovery_go_on = 0, cddp_recovery_replaced = 1
    integer(c_int), parameter, public :: cddp_recovery_stop = 2

    ! How a state is kept: see cddp_recovery_options of recovery.h. What is not set is the default.
    type, public :: cddp_recovery_options
        character(len=:), allocatable :: name
        integer(int64) :: every_steps = 0
    end type

    ! cddp_recovery_options of recovery.h.
    type, bind(c) :: c_recovery_options
        integer(c_size_t) :: struct_size
        type(c_ptr) :: name
        integer(c_int64_t) :: every_steps
        integer(c_int32_t) :: flags, reserved
    end type

    ! cddp_recovery_array of recovery.h.
    type, bind(c) :: c_recovery_array
        integer(c_size_t) :: struct_size
        type(c_ptr) :: name, values
        integer(c_int64_t) :: bytes, total, first
    end type

    ! cddp_recovery_callbacks of recovery.h.
    type, bind(c) :: c_recovery_callbacks
        integer(c_size_t) :: struct_size
        type(c_ptr) :: name
        integer(c_int64_t) :: bytes
        type(c_funptr) :: save, load
        type(c_ptr) :: state
    end type

    ! cddp_recovery_info of recovery.h.
    type, bind(c), public :: cddp_recovery_info
        integer(c_size_t) :: struct_size
        integer(c_int64_t) :: copies, spent_ns, bytes, kept_step, restored_step
    end type

    interface cddp_recovery_add
        module procedure add_real32, add_real64, add_int32, add_int64
    end interface

    interface
        integer(c_int) function c_recovery_create(group, options, out) &
            bind(c, name="cddp_recovery_create")
            import :: c_int, c_ptr, c_recovery_options
            type(c_ptr), value :: group
            type(c_recovery_options), intent(in) :: options
            type(c_ptr), intent(out) :: out
        end function
        subroutine cddp_recovery_destroy(recovery) bind(c, name="cddp_recovery_destroy")
            import :: c_ptr
            type(c_ptr), value :: recovery
        end subroutine
        integer(c_int) function c_recovery_add(recovery, array) bind(c, name="cddp_recovery_add")
            import :: c_int, c_ptr, c_recovery_array
            type(c_ptr), value :: recovery
            type(c_recovery_array), intent(in) :: array
        end function
        ! Parameters that are not frozen, and buffers. A ddp handle with a sharded optimizer is
        ! destroyed after this one.
        integer(c_int) function cddp_recovery_add_ddp(recovery, ddp) &
            bind(c, name="cddp_recovery_add_ddp")
            import :: c_int, c_ptr
            type(c_ptr), value :: recovery, ddp
        end function
        integer(c_int) function c_recovery_add_callbacks(recovery, callbacks) &
            bind(c, name="cddp_recovery_add_callbacks")
            import :: c_int, c_ptr, c_recovery_callbacks
            type(c_ptr), value :: recovery
            type(c_recovery_callbacks), intent(in) :: callbacks
        end function
        integer(c_int) function c_recovery_step(recovery, step, action) &
            bind(c, name="cddp_recovery_step")
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value :: recovery
            integer(c_int64_t), intent(inout) :: step
            integer(c_int), intent(out) :: action
        end function
        ! The loop fails, and its state may be the cause: the job goes on from its checkpoint.
        integer(c_int) function cddp_recovery_refuse(recovery) bind(c, name="cddp_recovery_refuse")
            import :: c_int, c_ptr
            type(c_ptr), value :: recovery
        end function
        integer(c_int) function c_recovery_get_info(recovery, out) &
            bind(c, name="cddp_recovery_get_info")
            import :: c_int, c_ptr, cddp_recovery_info
            type(c_ptr), value :: recovery
            type(cddp_recovery_info), intent(inout) :: out
        end function
        ! Stay in this process: see recovery.h.
        integer(c_int) function cddp_recovery_rejoin(why) bind(c, name="cddp_recovery_rejoin")
            import :: c_int
            integer(c_int), value :: why
        end function
        integer(c_int) function c_stop_on_signals(signals, count) &
            bind(c, name="cddp_stop_on_signals")
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: signals
            integer(c_size_t), value :: count
        end function
        integer(c_int) function c_fail(status, text) bind(c, name="cddp_fail")
            import :: c_char, c_int
            integer(c_int), value :: status
            character(kind=c_char), intent(in) :: text(*)
        end function
    end interface

contains

    integer(c_int) function cddp_recovery_create(group, recovery, options) result(status)
        type(c_ptr), intent(in) :: group
        type(c_ptr), intent(out) :: recovery
        type(cddp_recovery_options), intent(in), optional :: options
        character(kind=c_char, len=:), allocatable, target :: name
        type(c_recovery_options) :: how

        how = c_recovery_options(c_sizeof(how), c_null_ptr, 0, 0, 0)
        if (present(options)) then
            how%every_steps = options%every_steps
            if (allocated(options%name)) then
                name = trim(options%name) // c_null_char
                how%name = c_loc(name)
            end if
        end if
        status = c_recovery_create(group, how, recovery)
    end function

    ! Memory of any type: `bytes` bytes at `at`, which stay there. With total: this rank's part of
    ! `total` bytes of which each rank has others, from byte `first` on.
    integer(c_int) function cddp_recovery_add_bytes(recovery, name, at, bytes, total, first) &
        result(status)
        type(c_ptr), intent(in) :: recovery, at
        character(len=*), intent(in) :: name
        integer(c_int64_t), intent(in) :: bytes
        integer(c_int64_t), intent(in), optional :: total, first
        character(kind=c_char, len=:), allocatable, target :: text
        type(c_recovery_array) :: array

        text = trim(name) // c_null_char
        array = c_recovery_array(c_sizeof(array), c_loc(text), at, bytes, 0, 0)
        if (present(total)) array%total = total
        if (present(first)) array%first = first
        status = c_recovery_add(recovery, array)
    end function

    ! An array of `count` elements of `unit` bytes.
    integer(c_int) function add(recovery, name, at, count, unit, side_by_side, total, first) &
        result(status)
        type(c_ptr), intent(in) :: recovery, at
        character(len=*), intent(in) :: name
        integer(c_int64_t), intent(in) :: count
        integer, intent(in) :: unit
        logical, intent(in) :: side_by_side ! its elements are
        integer, intent(in), optional :: total, first
        integer(c_int), parameter :: err_argument = -1
        integer(c_int64_t) :: whole, begin

        whole = 0
        begin = 0
        if (present(total)) whole = int(total, c_int64_t) * unit
        if (present(first)) begin = int(first, c_int64_t) * unit
        if (.not. side_by_side) then
            status = c_fail(err_argument, trim(name) // " (its elements do not lie side by side, and &
                            &cddp takes no copy)" // c_null_char)
            return
        end if
        status = cddp_recovery_add_bytes(recovery, name, at, count * unit, whole, begin)
    end function

    ! A number, or an array of any rank whose elements lie side by side; it stays where it is. All
    ! ranks have the same values. With total: it is this rank's part of `total` elements of which
    ! each rank has others, from element `first` on, which counts from 0.
    integer(c_int) function add_real32(recovery, name, values, total, first) result(status)
        type(c_ptr), intent(in) :: recovery
        character(len=*), intent(in) :: name
        real(real32), intent(inout), target :: values(..)
        integer, intent(in), optional :: total, first

        status = add(recovery, name, c_loc(values), size(values, kind=c_int64_t), 4, &
                     is_contiguous(values), total, first)
    end function

    integer(c_int) function add_real64(recovery, name, values, total, first) result(status)
        type(c_ptr), intent(in) :: recovery
        character(len=*), intent(in) :: name
        real(real64), intent(inout), target :: values(..)
        integer, intent(in), optional :: total, first

        status = add(recovery, name, c_loc(values), size(values, kind=c_int64_t), 8, &
                     is_contiguous(values), total, first)
    end function

    integer(c_int) function add_int32(recovery, name, values, total, first) result(status)
        type(c_ptr), intent(in) :: recovery
        character(len=*), intent(in) :: name
        integer(int32), intent(inout), target :: values(..)
        integer, intent(in), optional :: total, first

        status = add(recovery, name, c_loc(values), size(values, kind=c_int64_t), 4, &
                     is_contiguous(values), total, first)
    end function

    integer(c_int) function add_int64(recovery, name, values, total, first) result(status)
        type(c_ptr), intent(in) :: recovery
        character(len=*), intent(in) :: name
        integer(int64), intent(inout), target :: values(..)
        integer, intent(in), optional :: total, first

        status = add(recovery, name, c_loc(values), size(values, kind=c_int64_t), 8, &
                     is_contiguous(values), total, first)
    end function

    ! A part of the state that functions write and read, `bytes` bytes of each rank: c_funloc() of
    !
    !     integer(c_int) function save(state, to) bind(c)
    !         type(c_ptr), value :: state, to
    !
    !     integer(c_int) function load(state, from, part, parts) bind(c)
    !         type(c_ptr), value :: state, from
    !         integer(c_int), value :: part, parts ! from 0: what rank `part` has saved
    !
    ! which give cddp_ok and call nothing of cddp.
    integer(c_int) function cddp_recovery_add_callbacks(recovery, name, bytes, save, load, state) &
        result(status)
        type(c_ptr), intent(in) :: recovery
        character(len=*), intent(in) :: name
        integer(c_int64_t), intent(in) :: bytes
        type(c_funptr), value :: save, load
        type(c_ptr), intent(in), optional :: state
        character(kind=c_char, len=:), allocatable, target :: text
        type(c_recovery_callbacks) :: callbacks

        text = trim(name) // c_null_char
        callbacks = c_recovery_callbacks(c_sizeof(callbacks), c_loc(text), bytes, save, load, &
                                         c_null_ptr)
        if (present(state)) callbacks%state = state
        status = c_recovery_add_callbacks(recovery, callbacks)
    end function

    ! A step begins, after `step` steps: action says what to do. With cddp_recovery_replaced, `step`
    ! becomes that of the state.
    integer(c_int) function cddp_recovery_step(recovery, step, action) result(status)
        type(c_ptr), intent(in) :: recovery
        integer, intent(inout) :: step
        integer(c_int), intent(out) :: action
        integer(c_int64_t) :: at

        at = step
        action = cddp_recovery_go_on
        status = c_recovery_step(recovery, at, action)
        step = int(at)
    end function

    integer(c_int) function cddp_recovery_get_info(recovery, info) result(status)
        type(c_ptr), intent(in) :: recovery
        type(cddp_recovery_info), intent(out) :: info

        info%struct_size = c_sizeof(info)
        status = c_recovery_get_info(recovery, info)
    end function

    ! SIGTERM, SIGINT, SIGHUP and SIGQUIT ask the job to stop: cddp_recovery_step() says so.
    integer(c_int) function cddp_stop_on_signals() result(status)
        status = c_stop_on_signals(c_null_ptr, 0_c_size_t)
    end function

end module
