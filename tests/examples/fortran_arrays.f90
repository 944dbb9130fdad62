! fortran_arrays.f90 - what cddp.f90 does with arrays of every kind, on 2 ranks: whole ones, of two
! dimensions or through a pointer, are trained; what has no memory of its own is refused with its name.
program fortran_arrays
    use, intrinsic :: iso_c_binding, only: c_bool, c_int, c_ptr
    use, intrinsic :: iso_fortran_env, only: real32
    use cddp
    use fortran_expect
    implicit none
    integer, parameter :: rows = 300, columns = 40
    real(real32), allocatable, target :: a(:,:), g(:,:)
    real(real32), pointer :: p(:), q(:), t(:,:)
    type(c_ptr) :: group
    character(len=600) :: long

    allocate (a(rows, columns), g(rows, columns))
    call cddp_must(cddp_group_create(group))
    call expect(cddp_group_world_size(group) == 2, "two ranks")

    call begin()
    call train([cddp_param_of("a", a, g)], "an array of two dimensions")
    call expect(all(nint(2 * a) == 0), "an array of two dimensions is trained")
    call sum_micro_batches()
    call begin()
    p(1:size(a)) => a
    q(1:size(g)) => g
    call train([cddp_param_of("a", p, q)], "a pointer to all elements")
    call expect(all(nint(2 * a) == 0), "a pointer to all elements is trained")
    call begin()
    call train([cddp_param_of("a", a(:, 2), g(:, 2))], "a column")
    call expect(all(nint(2 * a(:, 2)) == 0), "a column is trained")
    call expect(all(nint(a(:, 3)) == cddp_group_rank(group)), "the others are left alone")

    call refuse([cddp_param_of("row", a(1, :), g(1, :))], "row (its elements do not lie side by side")
    p => a(1, :)
    q => g(1, :)
    call refuse([cddp_param_of("pointer", p, q)], "pointer (its elements do not lie side by side")
    call refuse([cddp_param_of("bent", a(:, 1), g)], "bent (it and its gradient differ in shape")
    p(1:size(g)) => g
    t(1:columns, 1:rows) => p
    call refuse([cddp_param_of("turned", a, t)], "turned (it and its gradient differ in shape")
    long = repeat("x", len(long))
    call refuse([cddp_param_of(long, a, g)], "a name longer than")
    call cddp_group_destroy(group)
    deallocate (a, g)

contains

    subroutine begin()
        a = cddp_group_rank(group)
        g = cddp_group_rank(group)
    end subroutine

    subroutine train(params, what)
        type(cddp_param), intent(in) :: params(:)
        character(len=*), intent(in) :: what
        type(c_ptr) :: ddp
        logical(c_bool) :: all_joined
        integer(c_int) :: status

        status = cddp_ddp_create(group, params, ddp)
        call expect(status == cddp_ok, what)
        call cddp_must(cddp_ddp_begin(ddp, 1, 1))
        call cddp_must(cddp_ddp_grads_ready(ddp, 0, 1))
        call cddp_must(cddp_ddp_wait(ddp))
        call expect(all(nint(2 * g(:, 2)) == 1), what // ": the mean of both gradients")
        call cddp_must(cddp_ddp_broadcast(ddp, 1))
        call cddp_must(cddp_ddp_follow(ddp, all_joined))
        call expect(logical(all_joined), "both have joined")
        call cddp_ddp_destroy(ddp)
    end subroutine

    ! Three micro-batches on two ranks, whose gradients cddp adds up.
    subroutine sum_micro_batches()
        type(c_ptr) :: ddp
        integer :: m

        call cddp_must(cddp_ddp_create(group, [cddp_param_of("a", a, g)], ddp))
        do m = 2 * cddp_group_rank(group), min(2 * cddp_group_rank(group) + 1, 2)
            call cddp_must(cddp_ddp_begin_micro_batch(ddp, 1, m, 3))
            g = 10.0 ** m
            call cddp_must(cddp_ddp_grads_ready(ddp, 0, 1))
            call cddp_must(cddp_ddp_wait(ddp))
        end do
        call expect(all(nint(g) == 111), "the sum over three micro-batches")
        call cddp_ddp_destroy(ddp)
    end subroutine

    subroutine refuse(params, text)
        type(cddp_param), intent(in) :: params(:)
        character(len=*), intent(in) :: text
        type(c_ptr) :: ddp

        call expect(cddp_ddp_create(group, params, ddp) /= cddp_ok, text // " is refused")
        call expect(index(cddp_last_error(), text) > 0, cddp_last_error())
    end subroutine

end program
